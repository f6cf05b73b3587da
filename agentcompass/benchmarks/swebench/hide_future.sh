# Leave nothing in the repository that lies after the base commit, whatever could show it.
# Exit codes: 3 no usable repository or no base commit, 4 later commits could not be removed.
head=$(git rev-parse HEAD)

for remote in $(git remote); do git remote remove "$remote"; done
rm -rf .git/worktrees
git for-each-ref --no-merged "$head" --format='delete %(refname)' | git update-ref --no-deref --stdin || exit 4
rm -rf .git/logs .git/*_HEAD .git/*_EDITMSG .git/*_MSG .git/BISECT_* .git/rebase-* .git/sequencer

hidden() { # whether every commit that is stored is one that the head contains
    stored=$(git cat-file --batch-all-objects --batch-check='%(objecttype)' | grep -c '^commit$')
    [ "$stored" = "$(git rev-list --count --all HEAD)" ]
}
hidden && exit 0
if [ -e .git/objects/info/alternates ]; then
    git repack -q -a -d && rm -f .git/objects/info/alternates
fi
rm -f .git/objects/pack/*.keep
git -c gc.auto=0 repack -q -a -d && git prune --expire=now
hidden && exit 0
echo "commits after $2 remain in the repository"
exit 4
