# Apply a prediction (standard input, kept as $3) to the work tree. Prints what the tools say; the last line is
# "applied " with the way that worked, or none. Exit code 3: the work tree is not usable.
patch_file=$3
mkdir -p "$(dirname "$patch_file")" && cat >"$patch_file" || exit 3

# A failed way may leave half of the patch behind. This index knows all files as they are now.
index=$(mktemp) && cp "$(git rev-parse --git-dir)/index" "$index" || exit 3
GIT_INDEX_FILE=$index git add -A . >/dev/null 2>&1 || { echo "the work tree cannot be read"; exit 3; }
restore() {
    GIT_INDEX_FILE=$index git checkout-index -q -a -f
    GIT_INDEX_FILE=$index git clean -fdq
}

way=none
if git apply --verbose "$patch_file"; then
    way=apply
elif restore && git apply --verbose --reject "$patch_file"; then
    way=reject
elif restore && patch --batch --forward --fuzz=5 -p1 -i "$patch_file"; then
    way=fuzz
else
    restore
fi
rm -f "$index"
echo "applied $way"
