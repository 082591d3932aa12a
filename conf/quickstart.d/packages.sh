#!/bin/bash
# What the build, the quick start and the tests need on Debian 12, and how it is installed.
# To be sourced: install_packages installs what is missing, make_venv prepares build/venv.
# Or to be run: packages.sh [tests] [package] [browser] installs for these levels of the tests, too;
# packages.sh build installs what the build and its package need alone, also on Debian 13.

# Debian 12's libboost-dev is 1.74.
boost=libboost-dev
grep -q '^VERSION_ID="12"' /etc/os-release && boost=libboost1.81-dev
# To build.
spillway_build_packages=(
  cmake ninja-build g++ pkg-config dpkg-dev file python3
  "$boost" libmongoc-dev libbson-dev libabsl-dev libjemalloc-dev libgoogle-perftools-dev
  libspdlog-dev libfmt-dev libyaml-cpp-dev libcli11-dev libssl-dev libidn-dev libzstd-dev
  libsnappy-dev zlib1g-dev libpcre2-dev
)
# To build, and for the quick start.
spillway_packages=("${spillway_build_packages[@]}" python3-venv ca-certificates golang)
# The tests and benches want these besides.
spillway_test_packages=(catch2 libbenchmark-dev haproxy openssl procps sslscan nmap
  nodejs npm default-jdk-headless maven)
# The tests of what is shipped (tests/run package) want these besides.
spillway_package_tools=(mmdebstrap arch-test dpkg-dev lintian buildah mandoc man-db groff-base
  systemd-container)
# The tests of the admin port's page (tests/run --long integration) want these besides.
spillway_browser_packages=(chromium chromium-driver)
# `tests/run --long fuzz` wants clang-19 and libclang-rt-19-dev (a clang before 16 compiles all targets but two).

# The directory's Go is new enough for FerretDB (1.22): true or false.
go_is_new_enough() {
  local version
  version=$("$1" env GOVERSION 2>/dev/null) || return 1
  [[ $version =~ ^go([0-9]+)\.([0-9]+) ]] || return 1
  ((BASH_REMATCH[1] > 1 || BASH_REMATCH[2] >= 22))
}

have_go() {
  local go
  for go in "$(command -v go || true)" /usr/local/go/bin/go /usr/lib/go-1.*/bin/go; do
    [[ -x $go ]] && (cd / && go_is_new_enough "$go") && return 0
  done
  return 1
}

have_node() {
  command -v npm >/dev/null && command -v node >/dev/null &&
    [[ $(node --version) =~ ^v([0-9]+)\. ]] && ((BASH_REMATCH[1] >= 18))
}

# Prints which packages are missing of those named, one a line. A Go, Node.js, JDK or Maven from elsewhere serves, too.
missing_packages() {
  local package
  for package in "$@"; do
    case $package in
      golang) have_go || echo golang-1.23-go ;;
      nodejs | npm) have_node || echo "$package" ;;
      default-jdk-headless) command -v javac >/dev/null || echo "$package" ;;
      maven) command -v mvn >/dev/null || echo "$package" ;;
      *)
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
          echo "$package"
        ;;
    esac
  done
}

# Go 1.22 and later are in the backports of Debian 12: adds them beside the mirror in use.
add_backports() {
  apt-cache policy golang-1.23-go 2>/dev/null | grep -q 'Candidate: 1' && return
  local mirror
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' 'Component: main' |
    head -n 1)
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
    "${mirror:?no Debian 12 source is configured} bookworm-backports main" \
    >/etc/apt/sources.list.d/spillway-backports.list
  apt-get update -qq
}

# Installs what is missing of the packages named; needs root (or sudo) only if something is.
install_packages() {
  local missing
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]} == 0)) && return
  echo "installing ${missing[*]} ..."
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      echo "these packages are missing, install them as root: ${missing[*]}" >&2
      return 1
    fi
    sudo bash -c "source '${BASH_SOURCE[0]}'; install_packages $*"
    return
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  [[ " ${missing[*]} " == *" golang-1.23-go "* ]] && add_backports
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# make_venv ROOT: a Python environment with the clients of the tests, under build/venv.
make_venv() {
  local venv="$1/build/venv" wanted="$1/tests/integration/requirements.txt"
  cmp -s "$wanted" "$venv/requirements.txt" && return
  echo "preparing $venv ..."
  mkdir -p "$1/build"
  python3 -m venv "$venv"
  "$venv/bin/python" -m pip install -q --disable-pip-version-check -r "$wanted"
  cp "$wanted" "$venv/requirements.txt"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  set -euo pipefail
  wanted=("${spillway_packages[@]}")
  [[ $* == build ]] && wanted=()
  for level in "$@"; do
    case $level in
      build) wanted+=("${spillway_build_packages[@]}") ;;
      tests) wanted+=("${spillway_test_packages[@]}") ;;
      package) wanted+=("${spillway_package_tools[@]}") ;;
      browser) wanted+=("${spillway_browser_packages[@]}") ;;
      *) echo "packages.sh: no such level: $level" >&2 && exit 2 ;;
    esac
  done
  install_packages "${wanted[@]}"
fi
