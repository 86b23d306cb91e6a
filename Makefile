# Two commands matter: make notebook and make test.

BUILD := $(CURDIR)/.build
export JUPYTER_PATH := $(BUILD)/jupyter
export JUPYTER_DATA_DIR := $(BUILD)/jupyter/data
export JUPYTER_CONFIG_DIR := $(BUILD)/jupyter/config
export JUPYTER_RUNTIME_DIR := $(BUILD)/jupyter/runtime
# Python's own shell and Node would write to the home folder.
export IPYTHONDIR := $(BUILD)/jupyter/ipython
export npm_config_cache := $(BUILD)/npm
PYTHON = "$(BUILD)/venv/bin/python"

# For example: make notebook JUPYTER_FLAGS="--no-browser --port 9999"
JUPYTER_FLAGS ?=
# Jupyter wants to be told that root means it.
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

# What make check looks at, for example: make check PKG=./engine/replica
PKG ?= ./engine/...
# How many packages make test tries at the same time.
PACKAGES ?= 3
# How many seeds of each cell make simulate runs.
SEEDS ?= 2000
# How long make chaos goes on.
CHAOS ?= 10m

.DEFAULT_GOAL := help
.PHONY: help notebook test check cross book kafka lint pins need-gcc tools linter weave unweave bench compare crash mutants simulate chaos judges fuzz module clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

notebook: tools ## install what is missing and open the lessons in Jupyter
	@# Trusting our own notebooks lets Jupyter show their pictures before they are run.
	@$(PYTHON) -m nbformat.sign "$(CURDIR)"/notebooks/*.ipynb > /dev/null
	@# The project is the root, so that links from lessons to code open.
	$(PYTHON) -m jupyterlab --notebook-dir="$(CURDIR)" --LabApp.default_url=/lab/tree/notebooks/00-setting-out.ipynb $(AS_ROOT) $(JUPYTER_FLAGS)

test: need-gcc tools lint ## everything CI runs: lint, all tests under the race detector, all notebooks in the kernel
	@# Three packages at a time on two cores: many tests wait for processes and disks.
	@# The race detector would have each of them wait for a second before it ends.
	GORACE=atexit_sleep_ms=0 go test -race -p $(PACKAGES) ./...
	go run ./tutorials/weave -check -run

check: ## the short tests of PKG, without Jupyter: for while you work
	@test -z "$$(gofmt -l engine tutorials)" || { gofmt -l engine tutorials; echo "run: gofmt -w engine tutorials"; exit 1; }
	go vet $(PKG)
	go test -short -race $(PKG)

lint: linter ## what .golangci.yml demands: formatting, vet, staticcheck and more; and types in Python
	"$(BUILD)/bin/golangci-lint" run ./...
	"$(BUILD)/mypy/bin/python" -m mypy --strict --cache-dir "$(BUILD)/mypy/cache" engine/sdk/python/src engine/sdk/python/tests

cross: ## compile for every system that the README names
	@for t in linux/amd64 linux/arm64 darwin/arm64 windows/amd64; do echo "$$t"; GOOS=$${t%/*} GOARCH=$${t#*/} go build ./engine/... || exit 1; done

need-gcc:
	@tools/need go gcc

tools: ## build the kernel and install Jupyter into .build
	@tools/need go
	@notebooks/kernel/install

linter:
	@tools/need go python
	@test "$(BUILD)/bin/golangci-lint" -nt tools/go.mod || { \
		echo "building the linter (a minute, once)"; \
		cd tools && GOBIN="$(BUILD)/bin" go install tool && touch "$(BUILD)/bin/golangci-lint"; }
	@test "$(BUILD)/mypy/.stamp" -nt tools/requirements.txt || { \
		python3 -m venv "$(BUILD)/mypy" && \
		"$(BUILD)/mypy/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check -r tools/requirements.txt && \
		touch "$(BUILD)/mypy/.stamp"; }

pins: ## pin what Python's packages need, with hashes (needs uv)
	@for f in notebooks:3.10 tutorials/book:3.11 tools:3.10; do \
		uv pip compile --quiet --universal --python-version $${f#*:} --generate-hashes --no-header --no-annotate -o $${f%:*}/requirements.txt $${f%:*}/requirements.in || exit 1; \
	done

weave: ## write notebooks and tests from the literate sources, executing them in the kernel
	@$(MAKE) --no-print-directory tools
	go run ./tutorials/weave -run

unweave: ## write the literate sources from edited notebooks
	go run ./tutorials/weave -from-notebook
	go run ./tutorials/weave

book: ## the lessons as a web site and an EPUB, in .build/book
	@test "$(BUILD)/book/venv/.stamp" -nt tutorials/book/requirements.txt || { \
		echo "installing Sphinx into .build/book/venv (half a minute, once)"; \
		python3 -m venv "$(BUILD)/book/venv" && \
		"$(BUILD)/book/venv/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check -r tutorials/book/requirements.txt && \
		touch "$(BUILD)/book/venv/.stamp"; }
	go run ./tutorials/book -sphinx "$(BUILD)/book/venv/bin/sphinx-build" -o "$(BUILD)/book"

bench: ## benchmarks, each beside a raw baseline
	go test -run - -bench . -benchtime 2s ./engine/...

# For example: make compare BASE=main PKG=./engine/record BENCH=Parse
BASE ?= HEAD
BENCH ?= .
compare: ## benchmarks of PKG that match BENCH, now and at BASE, side by side
	@tools/compare "$(BASE)" "$(PKG)" "$(BENCH)"

crash: ## every crash, disk error, flip and cut of a log's script, not only the part of make test
	LOGBOOK_CRASH=all go test -count=1 -timeout 60m -run 'TestCrashEnumeration|TestEveryFlipAndCut|TestEveryFailingOperation|TestRepairKeepsEveryIntactRecord' -v ./engine/commitlog | grep -v '^=== '

mutants: ## plant bugs in the log and in replication, and show that each is caught
	go run ./engine/mutate

simulate: ## the guarantee table anew, SEEDS of each cell (hours for 2000)
	go run ./engine/cmd/logbook sim table --seeds $(SEEDS)

chaos: ## brokers as processes under kill -9, pauses, stops and cuts, with clients, for CHAOS: three, five, and three with three that only decide
	go run ./engine/chaos --for $(CHAOS)
	go run ./engine/chaos --for $(CHAOS) --brokers 5
	go run ./engine/chaos --for $(CHAOS) --brokers 6 --deciding 3

kafka: ## what must be the same on every log, on Apache Kafka itself (Java and Maven)
	engine/kafkaclient/apache/with-kafka go test -count=1 -timeout 10m ./engine/stream

judges: ## test suites of Kafka clients against a broker; needs the internet and port 9092
	engine/kafka/judges/run

fuzz: ## every fuzz target for 30 seconds
	@grep -rno 'func Fuzz[A-Za-z0-9]*' --include='*_test.go' engine | sed 's|\(.*\)/[^/]*:[0-9]*:func |./\1 |' | \
	while read -r pkg target; do \
		echo "$$pkg $$target"; \
		go test -run - -fuzz "^$$target\$$" -fuzztime 30s -fuzzminimizetime 10x "$$pkg" < /dev/null || exit 1; \
	done

# Here PATH is the module's, as in PATH=example.org/logbook; make's own is what finds programs.
module: ## rename the module everywhere, as in: make module PATH=example.org/logbook
	@case '$(origin PATH)' in "command line") ;; *) echo 'usage: make module PATH=example.org/logbook'; exit 2;; esac; \
	new='$(PATH)'; PATH="$$(/usr/bin/getconf PATH)"; export PATH; \
	if [ -r /proc/$$PPID/environ ]; then PATH="$$(tr '\0' '\n' < /proc/$$PPID/environ | sed -n 's/^PATH=//p')"; fi; \
	tools/module "$$new"

clean: ## remove everything that was built or installed
	rm -rf -- "$(BUILD)"
