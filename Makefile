# The entry points. `make` lists them; a target's help is the `##` comment beside it.
# Each command lives here once; the order in which continuous integration runs them is in .ci/run.

.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

CARGO ?= cargo
# What `make run` gives the program: `make run ARGS="bench limits"`.
ARGS ?= bench
# How many processes `make crash` kills, and the seed of its choices and those of `make soak`.
KILLS ?= 10000
# How many clients `make soak` lets come and go.
CYCLES ?= 1000000
SEED ?= 2026
# For how long `make fuzz` runs each fuzzer, and which of them: all if nothing is said. Its seed is another one each time, unless it is given.
MINUTES ?= 10
FUZZER ?=
# Where `make install` puts things, below DESTDIR.
PREFIX ?= /usr/local
DESTDIR ?=
# CONIC_PORTABLE=1 builds for any x86-64 machine instead of this one.
ifdef CONIC_PORTABLE
export RUSTFLAGS := -C target-cpu=x86-64
endif

.PHONY: help setup run build test test-dpdk lint format docs sanitize smoke restless crash soak fuzz exchanges install package deb dpdk ci peers clean

help: ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12
	@echo
	@echo 'CONIC_PORTABLE=1 builds for any x86-64 machine; ARGS="bench limits" is what `make run` runs.'

setup: ## check the tools, and install the parts of the toolchain that are missing
	@.ci/setup

run: setup ## build and run the main job: a tour of the benchmarks, under a minute, without root
	$(CARGO) run --release --locked -p conic -- $(ARGS)

build: setup ## build everything, optimised
	$(CARGO) build --release --locked --workspace

test: setup ## build and pass all tests; as root, install the programs that they meet as peers
	@.ci/tools
	$(CARGO) test --locked --workspace --no-fail-fast

test-dpdk: setup ## with DPDK, which it installs where it may: lint and test its devices as ports (as root; otherwise they are skipped)
	@.ci/tools
	@.ci/dpdk

lint: setup ## check the format, and refuse every warning
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) run --locked --quiet -p conic-tidy

format: setup ## format the code
	$(CARGO) fmt --all

docs: setup ## build the documentation, and refuse every warning
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps

sanitize: setup ## run the tests of what shares memory under AddressSanitizer and ThreadSanitizer
	@.ci/sanitize

restless: setup ## run the tests while cores are taken away for 10 to 150 ms now and then, as a busy hypervisor does (needs root)
	@.ci/restless $(MAKE) test

crash: setup ## kill clients and the daemon ten thousand times, at each of their steps (some ten minutes); KILLS=10000 SEED=2026
	$(CARGO) test --locked -p conic-daemon --test crash_matrix -- --kills $(KILLS) --seed $(SEED)

soak: setup ## attach and detach CYCLES clients, with frames of every size in bursts of every length
	$(CARGO) test --locked --release -p conic-daemon --test soak -- --cycles $(CYCLES) --seed $(SEED)

fuzz: setup ## run the fuzzers for MINUTES each, led by what their inputs reach; MINUTES=10 SEED=... FUZZER=nic-half
	@.ci/fuzz --minutes $(MINUTES) $(if $(filter-out file,$(origin SEED)),--seed $(SEED)) $(if $(FUZZER),--only $(FUZZER))

exchanges: setup ## send millions of requests and frames through pairs of lines: between threads, and on modelled machines while lines are given up
	$(CARGO) test --locked --release -p conic-interface --test pio -- explore:: threads::
	$(CARGO) test --locked --release -p conic-study --test study -- enzian::random

smoke: build ## run a short main job, and check what it prints
	@.ci/smoke

install: ## install what `make build` built: PREFIX=/usr/local DESTDIR=
	@packaging/install --prefix '$(PREFIX)' --destdir '$(DESTDIR)'

deb: build ## build a Debian package, debian/conic_*.deb below target or CARGO_TARGET_DIR; with CONIC_PORTABLE=1 one for any machine
	@packaging/deb

package: build ## check what is installed and packaged
	@packaging/check

ci: ## run all checks, as continuous integration does
	@.ci/run

dpdk: setup ## build DPDK's driver for conic, target/dpdk/librte_net_conic.so
	@bindings/dpdk/build

peers: ## install DPDK, for `conic bench peers`
	@.ci/peers

clean: ## remove what was built
	$(CARGO) clean
