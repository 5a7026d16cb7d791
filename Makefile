# With Node, npm and make, a fresh clone is enough for all targets but `e2e`, `bench` and `image`, which say what they need.

IMAGE = gatehouse
IMAGE_TOOL = docker
DOCKERFILE = Dockerfile
FILES =
TESTS =
FILE =
NODES =
SERVICE =
SINCE =
NAME =
PART =
ARGS =
sources := $(shell find src)
prettier := npm exec --yes prettier@3.10.1 --
# The layout of HTML and style sheets is by hand: a rule of the style sheet is one line.
formatted := 'src/**/*.{ts,js}' 'test/**/*.{ts,mjs}' 'scripts/**/*.{ts,mjs}'

.PHONY: help start dev dump load clean clean-data test test-fast test-node guarantees mutants check typecheck format format-check audit schema e2e bench build image sbom

help: ## list the targets
	@awk -F ':.*## ' '/^##@ /{ printf "\n%s\n", substr($$0, 5) } /^[a-z0-9-]+:.*## /{ printf "  make %-14s %s\n", $$1, $$2 }' Makefile

##@ Run

start: dist/.built ## start the three services, and a private PostgreSQL if DATABASE_URL is not set
	@node --import tsx scripts/start.ts

dev: dist/.built ## like start, but run the source and restart after every change
	@node --import tsx scripts/start.ts --watch

dump: node_modules/.installed ## write the data of DATABASE_URL, or of make start, to a new file: make dump FILE=gatehouse.dump
	@node --import tsx scripts/dump.ts dump $(FILE)

load: node_modules/.installed ## read such a file into the new, empty database of DATABASE_URL or of make start: make load FILE=gatehouse.dump
	@node --import tsx scripts/dump.ts load $(FILE)

clean: ## remove installed packages and build output; keep the data
	rm -rf node_modules dist

server := .data/postgres/data/postmaster.pid
clean-data: ## remove .data: the private database and the generated secrets
	@if test -f $(server) && kill -0 `head -n 1 $(server)` 2>/dev/null; then echo 'its PostgreSQL is running: stop "make start" first' >&2; exit 1; fi
	@test ! -d .data || echo 'removing .data: the embedded database with everything stored in it, and the generated secrets and tokens'
	@rm -rf .data

##@ Test

test: node_modules/.installed ## run every test against a PostgreSQL of its own; FILES="test/unit" runs only some
	@node --import tsx scripts/test.ts $(FILES)

test-fast: node_modules/.installed ## run the fast tests: unit, repository and most of api
	@node --import tsx scripts/test.ts --fast

test-node: node_modules/.installed ## run the tests with the newest Node 20, 22 and 24 of the npm registry; NODES="22 24" FILES="test/unit" runs only some
	@node --import tsx scripts/node-versions.ts $(NODES) -- $(FILES)

check: typecheck test ## check the types and run every test; required before a merge
	@node --import tsx scripts/ceilings.ts

typecheck: node_modules/.installed ## check the types of sources, tests and scripts
	@npm run --silent typecheck

format: ## format all code with Prettier, a pinned version from the npm registry
	@$(prettier) --write --cache --log-level warn $(formatted)

format-check: ## check that all code is formatted
	@$(prettier) --check --cache --log-level warn $(formatted)

audit: node_modules/.installed ## list what a security reviewer reads; for one service: SERVICE=secrets; only changes: SINCE=commit
	@node --import tsx scripts/audit.ts "$(SINCE)" $(SERVICE)

schema: node_modules/.installed ## write docs/schema.sql, the schemas after all steps
	@node --import tsx scripts/schema.ts

guarantees: node_modules/.installed ## break each guarantee of SECURITY.md in one place, and require that its test fails; ARGS=text selects some
	@node --import tsx scripts/guarantees.ts "$(ARGS)"

mutants: node_modules/.installed ## change the conditions of FILES="src/…" one at a time, and list the changes that no test notices; TESTS="test/api" limits the tests
	@TESTS="$(TESTS)" node --import tsx scripts/mutants/main.ts $(FILES)

##@ End-to-end

e2e: node_modules/.installed ## run tests that need other programs, and install these if run as root: make e2e NAME=browser; without NAME, list them
	@node --import tsx scripts/e2e.ts $(NAME)

##@ Measure

bench: dist/.built ## compare with a minimal server, under load by wrk: PART=webhook measures one part, ARGS=--against=REF compares with a commit, ARGS=--write updates docs/benchmarks.md
	@node --import tsx scripts/bench/suite.ts $(PART) $(ARGS)

##@ Package

build: dist/.built ## compile src/ to dist/

image: ## build the container image; IMAGE=name, IMAGE_TOOL=podman or buildah, DOCKERFILE=Dockerfile.minimal
	$(IMAGE_TOOL) build --tag $(IMAGE) --file $(DOCKERFILE) --build-arg REVISION=`git rev-parse HEAD` $(if $(filter docker,$(IMAGE_TOOL)),,--format docker) .

sbom: node_modules/.installed ## print what a production installation contains, as CycloneDX
	@node --import tsx scripts/sbom.ts

# Before npm and tsx, which end with a stack trace on a Node that is too old.
.PHONY: supported-node
supported-node:
	@node -e 'var v = process.versions.node.split("."); if (v[0] < 20 || (v[0] == 20 && v[1] < 11)) { console.error("Node " + process.versions.node + " is too old. Install Node 20.11 or newer."); process.exit(1) }'

# The two files below say that a step was completed; one that was interrupted is done again.
node_modules/.installed: package.json package-lock.json scripts/embedded/package.json .npmrc | supported-node
	npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

# A directory's time changes when a file is added or removed.
dist/.built: node_modules/.installed tsconfig.json scripts/tsconfig.build.json $(wildcard scripts/openapi*.ts) $(sources)
	npm run --silent build
	@touch $@
