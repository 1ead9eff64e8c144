# `make` lists the targets. ERL chooses the Erlang to run on (`make test ERL=/opt/otp/bin/erl`). The build always uses the `erl` on
# the PATH, and what it leaves runs on that release and later ones.

ERL ?= erl
export ERL

EBIN = _build/default/lib/cats/ebin
MKDOCS = _build/mkdocs/bin/mkdocs
# rebar3 is an escript of precompiled code: it runs on the Erlang that stands beside it. It compiles into a directory of its own, as tests
# may use the other one meanwhile.
REBAR3 = REBAR_BASE_DIR=_build/lint PATH="$$(dirname "$$(command -v rebar3)"):$$PATH" rebar3

.PHONY: help deps deps-test build demo bench docs bench-native test test-native test-models test-schedules test-erlang test-results test-measures test-portable test-small test-debug test-aarch64 test-targets test-conflicts test-bench test-docs test-page linearizability conformance cluster storm check sanitize lint lint-native lint-floors lint-orderings lint-erlang lint-pages shell shell-mnesia dist clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 14

deps: ## install what building needs and the machine lacks (as root; else say what that is)
	@scripts/deps

deps-test: ## the same for the tests
	@scripts/deps test

build: deps ## build the native library and the Erlang application
	@scripts/build-native
	@scripts/build-erlang

demo: build ## run the papers' ets_bench, and calls on sessions, on ets and cats side by side (QUICK=1: in a minute or two)
	@QUICK=$(QUICK) bench/demo

bench: build ## measure all experiments on ets and cats, draw and report them (bench/run --help: choose; bench/compare: two runs)
	@scripts/deps bench
	@bench/run

docs: build $(MKDOCS) ## make the site of guide, reference, internals and performance, in _build/site
	@NO_MKDOCS_2_WARNING=1 $(MKDOCS) build --strict --clean
	@echo "The site is at _build/site/index.html"

$(MKDOCS): docs/site/requirements.txt
	@scripts/deps docs
	@/usr/bin/python3 -m venv --clear _build/mkdocs
	@_build/mkdocs/bin/pip install --quiet --disable-pip-version-check --requirement docs/site/requirements.txt
	@touch $(MKDOCS)

bench-native: deps ## measure all engines and locks beside maps of other Rust libraries (QUICK=1: in 3 minutes; FILTER=name)
	cd native && cargo bench --locked -p cats-bench --bench engines

test: deps-test ## run all tests that may run beside other programs
	@scripts/test

test-native: deps-test ## the tests of the Rust crates; builds the library that cats_term_SUITE and the storm load
	cd native && cargo test --locked --no-fail-fast --tests
	cd native && cargo build --locked --package cats-nif --features selftest

test-models: deps-test ## check models of the synchronisation with loom
	cd native && RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-target}/loom sh -c '\
	    cargo test --locked --profile models -p cats-sync -p cats-papers --test models --test instant_model --test resize_model \
	        --test lock_models --test linear_hash_model --test hazard_model --test skip_list_model'

test-schedules: deps-test ## models of whole engines under random schedules, with shuttle
	cd native && RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-target}/shuttle sh -c '\
	    cargo test --locked -p cats-engine -p cats-papers -p cats-table --lib models && \
	    cargo test --locked -p cats-papers --test linear_hash_shuttle'

test-erlang: deps-test build ## the Erlang tests (SUITE=name: one of them): comparison with ets, ownership, concurrency, errors
	@scripts/test-erlang

test-results: deps-test build ## those of the Erlang tests beside which anything may run
	@MEASURES=none scripts/test-erlang

test-measures: deps-test build ## those of the Erlang tests that measure time or memory: they need an idle machine
	@MEASURES=only scripts/test-erlang

test-portable: deps-test build ## tests without any fast path that assumes a processor or a system (SUITE="name ...": these Erlang suites)
	@scripts/test-portable

test-small: deps-test build ## tests of a build without the engines that exist for comparison (SUITE="name ...": these Erlang suites)
	@scripts/test-small

test-debug: deps-test build ## the Erlang suites on OTP's debug emulator (OTP=/path/to/source; SUITE="name ...": these)
	@scripts/test-debug

test-aarch64: deps-test build ## the native tests and the Erlang suites on an emulated aarch64; needs Debian, as root (up to an hour)
	@scripts/test-aarch64

test-targets: deps-test ## build the native library for every target, with zig as the linker, and run the native tests on musl
	@scripts/test-targets

test-conflicts: deps-test ## check by cache lines that operations which commute do not conflict (Linux on x86-64; some three minutes)
	@scripts/conflicts

test-bench: deps-test ## the tests of the bench's tools; some are skipped without `scripts/deps bench`
	@cd bench && /usr/bin/python3 -m tool.tests

test-docs: docs ## check the links of the documents, and use the search of the site in a browser
	@scripts/deps browser
	@/usr/bin/python3 docs/site/test.py

test-page: build ## look for a hot spot by the live page in a browser; leaves screenshots in _build/live-page
	@scripts/deps browser
	@/usr/bin/python3 test/inside/live_page.py

linearizability: deps-test ## record histories of all engines (ROUNDS=n of each kind) and judge them with porcupine
	@scripts/linearizability

conformance: deps-test build ## the Erlang tests that hold for every engine, over each (ENGINES="name ...") and under each table lock
	@scripts/conformance

cluster: deps-test build ## the scenarios of a Mnesia cluster, on ets and on cats, with a longer load (CATS_CLUSTER_MS of each)
	@CATS_CLUSTER_MS=$${CATS_CLUSTER_MS:-10000} SUITE=cats_cluster_SUITE scripts/test-erlang

storm: deps-test build ## random calls of the whole library on random tables (SECONDS=60 WORKERS=4; SEED=n repeats one, ROUND=n from there)
	@scripts/storm

check: deps-test ## what takes long: histories by the thousand, models, other targets, sanitizers, the site (some six hours)
	@THOROUGH=10 CATS_STRESS_MS=1000 $(MAKE) test-native
	@THOROUGH=10 $(MAKE) test-results test-models
	@$(MAKE) test-measures test-schedules
	@ROUNDS=1000 scripts/linearizability
	@$(MAKE) conformance
	@$(MAKE) cluster
	@cd native && cargo test --locked -p cats-bench --lib
	@$(MAKE) test-conflicts test-portable test-small test-targets test-aarch64
	@$(MAKE) sanitize
	@SECONDS=3600 scripts/sanitize storm
	@$(MAKE) test-docs test-page

sanitize: deps-test build ## the tests under the address sanitizer, the histories under the thread sanitizer
	@scripts/sanitize address
	@scripts/sanitize thread
	@scripts/sanitize vm

lint: lint-native lint-floors lint-orderings lint-erlang lint-pages ## run all linters

lint-native: deps ## rustfmt, clippy
	cd native && cargo fmt --all --check
	cd native && CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-target}/lint cargo clippy --locked --workspace --all-targets -- -D warnings

lint-floors: ## no room of a crate imports from a floor above its own
	@scripts/lint-floors

lint-orderings: ## each atomic ordering has its reason near it
	@scripts/lint-orderings

lint-erlang: build ## the length of lines, xref, Dialyzer
	@scripts/deps lint
	@scripts/lint-lines
	@$(REBAR3) do xref, dialyzer

lint-pages: deps ## ESLint over the scripts of the pages
	@scripts/deps pages
	@scripts/lint-pages

shell: build ## an Erlang shell with cats loaded
	@$(ERL) -pa $(EBIN) -eval '{ok, _} = application:ensure_all_started(cats).'

shell-mnesia: build ## an Erlang shell with a Mnesia whose tables are those of cats
	@scripts/deps mnesia
	@$(ERL) -noinput -pa $(EBIN) -eval '{ok, _, _} = cats_recompile:apps([mnesia], "_build/recompiled"), halt().'
	@$(ERL) -pa $(EBIN) -pa _build/recompiled/mnesia/ebin -mnesia dir '"_build/recompiled/data"' -eval 'ok = mnesia:start().'

dist: deps ## build and pack the native library for every target (TARGETS="name ..."), and list the checksums
	@scripts/dist $(TARGETS)

clean: ## remove what was built
	@scripts/build-native --clean
	@rm -rf _build
