#!/usr/bin/env bash
# Makes the commit and the tags of a release: all modules that users import get the same version, in one commit, and
# require each other in that version. (Between releases they require v0.0.0, and a replace says that it lies beside them.
# The replace stays: only the main module's counts.) It pushes nothing. It is called by "make release".
#
#   release.sh v1.2.3
set -euo pipefail
cd "$(dirname "$0")/../.."
version=${1-}
say() {
	echo "$*" >&2
	exit 1
}
[[ $version =~ ^v[01]\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || say "\"$version\" is no version such as v1.2.3 (from v2 on a module's path has the number, too)"
[ -z "$(git status --porcelain --untracked-files=no)" ] || say "There are changes that are not committed."
number=${version#v}
grep -qE "^## ${number//./\\.}( |\$)" CHANGELOG.md || say "CHANGELOG.md has no \"## $number\": give \"Unreleased\" its number."
modules=(adapters/*/ $(dirname register/*/go.mod | sed 's|$|/|') proof/)
for module in '' "${modules[@]}"; do
	git rev-parse -q --verify "refs/tags/$module$version" >/dev/null && say "The tag $module$version is there already."
done
for module in "${modules[@]}" register/*/*/ docs/ proof/bench/; do # those behind ours have no tags, and require the others
	[ -e "$module/go.mod" ] || continue
	for ours in $(go -C "$module" mod edit -print | grep -oE '^(require)?\s*github\.com/lockstile/locker\S* v' | grep -oE 'github\S+' | sort -u); do
		go -C "$module" mod edit -require "$ours@$version"
	done
	git add "$module/go.mod"
done
git commit -q -m "Release $version"
for module in '' "${modules[@]}"; do
	git tag "$module$version"
done
echo "Tagged: $(git tag --points-at HEAD | xargs)"
echo "To publish: git push --atomic origin HEAD $(git tag --points-at HEAD | xargs)"
