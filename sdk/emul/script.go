// SPDX-License-Identifier: Apache-2.0

package emul

import "strings"

// prelude defines what every script uses; roots are where paths may lead.
func prelude(roots []string) string {
	var inside strings.Builder
	for i, r := range roots {
		if i > 0 {
			inside.WriteByte('|')
		}
		inside.WriteString(quote(strings.TrimRight(r, "/")) + "/*")
	}
	return strings.NewReplacer("@INSIDE@", inside.String(), "@ROOT@", quote(roots[0])).Replace(functions)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// functions, in short: say ends with a code; enter DIR NAME [follow] changes into DIR, sets p to where that is and b to
// the name in it, follows links of the last place if wanted and then also changes into a directory (b is "." there);
// record NAME prints what stat says, then the link's target, each ended by NUL.
const functions = `say() { printf 'berth:%s\n' "$1" >&2; exit 3; }
where() { p=$(pwd -P; echo .); p=${p%??}; }
check() { case $p/ in @INSIDE@) ;; *) say path_escapes;; esac; }
goto() {
  cd -P -- "$1" 2>/dev/null && return
  if [ -d "$1" ]; then say permission_denied; fi
  if [ -e "$1" ] || [ -L "$1" ]; then say not_directory; fi
  say file_not_found
}
enter() {
  d=$1 b=$2 n=0
  while :; do
    goto "$d"
    if [ "$3" = follow ]; then
      if [ -L "./$b" ]; then
        n=$((n+1)); [ $n -le 40 ] || say invalid_argument
        t=$(readlink -- "./$b"; echo .); t=${t%??}
        while :; do case $t in ?*/) t=${t%/};; *) break;; esac; done
        case $t in
          /) d=/ b=.;;
          */*) d=${t%/*}; b=${t##*/}; [ -n "$d" ] || d=/;;
          *) d=. b=$t;;
        esac
        case $b in .|..) d=$d/$b b=.;; esac
        continue
      fi
      if [ "$b" != . ] && [ -d "./$b" ]; then d=./$b b=.; continue; fi
    fi
    where; check
    return 0
  done
}
parents() {
  [ -d "$1" ] && return 0
  if [ -e "$1" ] || [ -L "$1" ]; then say not_directory; fi
  case ${1%/*} in '') enter / "${1##*/}";; *) parents "${1%/*}"; enter "${1%/*}" "${1##*/}";; esac
  mkdir -- "./$b" || exit 1
}
record() {
  r=$(stat -c '%f %s %Y %Z %u %g %h %i %U %G %y' -- "$1") || return 1
  t=
  if [ -L "$1" ]; then t=$(readlink -- "$1"; echo .); t=${t%??}; fi
  printf '%s\0%s\0' "$r" "$t"
}
there() { [ -e "./$b" ] || [ -L "./$b" ]; }
root=@ROOT@
`

// statScript describes each pair of directory and name; an error takes the place of a record.
const statScript = `follow=$1; shift
while [ $# -gt 1 ]; do
  m=$( ( enter "$1" "$2" "$follow"; there || say file_not_found; record "./$b" >/dev/null ) 2>&1 ) && ( enter "$1" "$2" "$follow"; record "./$b" ) || printf '!%s\0\0' "$m"
  shift 2
done`

const listGNU = `enter "$1" "$2" follow
[ -d "./$b" ] || { there && say not_directory; say file_not_found; }
cd -- "./$b" || exit 1
find . -mindepth 1 $3 -printf '%P\0%y %s %T@ %C@ %U %G %n %i %m %u %g\0%l\0'`

const listAny = `enter "$1" "$2" follow
[ -d "./$b" ] || { there && say not_directory; say file_not_found; }
cd -- "./$b" || exit 1
find . -mindepth 1 $3 -exec sh -c 'for f do
  r=$(stat -c "%f %s %Y %Z %u %g %h %i %U %G %y" -- "$f") || continue
  t=
  if [ -L "$f" ]; then t=$(readlink -- "$f"; echo .); t=${t%??}; fi
  printf "%s\0%s\0%s\0" "${f#./}" "$r" "$t"
done' sh {} +`

const openScript = `enter "$1" "$2" follow
there || say file_not_found
if [ -d "./$b" ]; then say is_directory; fi
[ -f "./$b" ] || say not_regular
[ -r "./$b" ] || say permission_denied
record "./$b" || exit 1
case $3,$4 in
  0,0) exec cat -- "./$b";;
  0,*) exec head -c "$4" -- "./$b";;
  *,0) exec tail -c "+$(($3+1))" -- "./$b";;
  *) tail -c "+$(($3+1))" -- "./$b" | head -c "$4";;
esac`

// stageScript takes the content and says where it is: directory, name.
const stageScript = `[ "$4" != parents ] || parents "$1"
enter "$1" "$2" follow
if [ "$b" = . ] || [ -d "./$b" ]; then say is_directory; fi
if there && [ ! -f "./$b" ]; then say not_regular; fi
umask 077
cat > "./$3" || { rm -f -- "./$3"; exit 1; }
printf '%s\0%s\0' "$p" "$b"`

// commitScript puts staged content in its place: DIR NAME STAGED HOW MODE TIME VERSION.
const commitScript = `cd -P -- "$1" || exit 1
where; check
b=$2 old=
trap 'rm -f -- "./$3"' EXIT
if [ -d "./$b" ]; then say is_directory; fi
if there; then old=1; fi
if [ -n "$7" ]; then
  [ -n "$old" ] || say file_not_found
  v=$(stat -c '%i-%s-%y-%Z' -- "./$b") || exit 1
  [ "$v" = "$7" ] || say version_mismatch
fi
mode=$5
if [ -z "$mode" ] && [ -n "$old" ]; then mode=$(stat -c %a -- "./$b"); fi
if [ -z "$mode" ]; then mode=644; fi
case $4 in
  append) cat -- "./$3" >> "./$b" || exit 1; [ -n "$old" ] || chmod "$mode" -- "./$b";;
  inplace) cat -- "./$3" > "./$b" || exit 1; chmod "$mode" -- "./$b" || exit 1;;
  exclusive) chmod "$mode" -- "./$3" && ln -- "./$3" "./$b" || exit 1;;
  *)
    chmod "$mode" -- "./$3" || exit 1
    if [ -n "$old" ]; then chown "$(stat -c %u:%g -- "./$b")" "./$3" 2>/dev/null; fi
    mv -f -- "./$3" "./$b" || exit 1;;
esac
if [ -n "$6" ]; then touch -d "$6" -- "./$b" || exit 1; fi
record "./$b"`

const dropScript = `cd -P -- "$1" 2>/dev/null && rm -f -- "./$2"; exit 0`

const mkdirScript = `if [ "$3" = parents ]; then parents "$1"; fi
enter "$1" "$2"
if there; then
  if [ "$3" = parents ] && [ -d "./$b" ]; then exit 0; fi
  say file_exists
fi
mkdir -- "./$b" || exit 1
[ -z "$4" ] || chmod "$4" -- "./$b"`

const removeScript = `if [ "$3" = recursive ] && [ ! -d "$1" ]; then exit 0; fi
enter "$1" "$2"
if [ "$b" = . ] || [ "${p%/}/$b" = "$root" ]; then say invalid_argument; fi
if [ "$3" = recursive ]; then rm -rf -- "./$b"; exit; fi
there || say file_not_found
if [ -d "./$b" ] && [ ! -L "./$b" ]; then rmdir -- "./$b"; else rm -f -- "./$b"; fi`

const moveScript = `to=$(enter "$3" "$4"; if [ "$b" = . ]; then say invalid_argument; fi; printf '%s/%s.' "${p%/}" "$b") || exit 3
to=${to%.}
enter "$1" "$2"
there || say file_not_found
if [ "$b" = . ] || [ "${p%/}/$b" = "$root" ] || [ "$to" = "$root" ]; then say invalid_argument; fi
if [ "${p%/}/$b" = "$to" ]; then exit 0; fi
if [ -e "$to" ] || [ -L "$to" ]; then
  [ "$5" = replace ] || say file_exists
  if [ -L "$to" ]; then rm -f -- "$to" || exit 1
  elif [ -d "$to" ]; then
    if [ ! -d "./$b" ] || [ -L "./$b" ]; then say is_directory; fi
    rmdir -- "$to" || exit 1
  elif [ -d "./$b" ] && [ ! -L "./$b" ]; then say not_directory
  fi
fi
mv -f -- "./$b" "$to"`

const metaScript = `enter "$1" "$2" follow
there || say file_not_found
[ -z "$4" ] || chown $3 "$4" -- "./$b" || exit 1
[ -z "$5" ] || chmod $3 "$5" -- "./$b" || exit 1
[ -z "$6" ] || touch -d "$6" -- "./$b"`

const exportScript = `enter "$1" "$2" follow
[ -d "./$b" ] || { there && say not_directory; say file_not_found; }
cd -- "./$b" || exit 1
tar -cf - . || [ $? -eq 1 ]`

const importScript = `if [ "$2" != . ]; then parents "$1/$2"; fi
enter "$1" "$2" follow
[ -d "./$b" ] || say not_directory
cd -- "./$b" || exit 1
if [ "$3" = replace ]; then find . -mindepth 1 -maxdepth 1 -exec rm -rf -- {} + || exit 1; fi
tar -xpf -`
