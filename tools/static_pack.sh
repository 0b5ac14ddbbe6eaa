#!/usr/bin/env bash
# Makes a folder with a program and everything that it loads, the C library and the dynamic linker included. `./dev static NAME`
# builds the program first.
#
# usage: static_pack.sh PROGRAM FOLDER
#
#   FOLDER/NAME      starts lib/NAME with the libraries next to it; linked statically (tools/static_launcher.cpp)
#   FOLDER/lib       the program, stripped, its libraries, and the dynamic linker
#   FOLDER/licenses  the licences of the libraries' packages, on a system with dpkg
set -euo pipefail

program=$1 to=$2 name=$(basename "$1") here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fail() {
  echo "static_pack: $*" >&2
  exit 1
}

# Older C libraries look up names by files that no library lists, or by DNS before /etc/hosts; their dynamic linker lacks --argv0.
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null) || fail "needs the GNU C library, 2.35 or later"
[[ $(printf '%s\n' 2.35 "${glibc#* }" | sort -V | head -n 1) == 2.35 ]] || fail "needs glibc 2.35 or later, this is ${glibc#* }"

# Lines of ldd: "libz.so.1 => /lib/libz.so.1 (0x7f...)", "/lib64/ld-linux-x86-64.so.2 (0x7f...)", "linux-vdso.so.1 (0x7f...)".
list=$(ldd "$program") || fail "$program is not a dynamically linked program of this machine"
missing=$(awk '/not found/ { print $1 }' <<<"$list")
[[ -z $missing ]] || fail "$program needs libraries that this machine lacks: ${missing//$'\n'/, }"
linker=$(awk '$1 ~ /^\/.*\/ld-linux/ { print $1 }' <<<"$list")
[[ -n $linker ]] || fail "$program names no dynamic linker"
mapfile -t libraries < <(awk '$3 ~ /^\// { print $3 }' <<<"$list")

rm -rf "$to"
mkdir -p "$to/lib" "$to/licenses"
strip -s -o "$to/lib/$name" "$program"
cp -L "${libraries[@]}" "$linker" "$to/lib/"
"${CXX:-g++}" -std=c++20 -O2 -static -s "-DLOCKSTEP_DYNAMIC_LINKER=\"$(basename "$linker")\"" \
  "$here/static_launcher.cpp" -o "$to/$name"

if command -v dpkg-query >/dev/null; then
  # With a merged /usr the packages list a file under one of its two names.
  for file in "${libraries[@]}" "$linker"; do
    { dpkg-query -S "$(realpath "$file")" || dpkg-query -S "$(realpath "$file" | sed 's,^/usr,,')"; } 2>/dev/null || true
  done | sed 's/:.*//' | sort -u | while read -r package; do
    [[ ! -e /usr/share/doc/$package/copyright ]] || cp -L "/usr/share/doc/$package/copyright" "$to/licenses/$package"
  done
fi
rmdir --ignore-fail-on-non-empty "$to/licenses"
