# Every target brings what it needs: with Node, npm and make, a fresh clone is enough for all of them but `test-nginx`, `test-browser`, `test-signin`, `test-pgbouncer`, `test-ha`, `test-deploy`, `test-image`, `test-arm` and `image`.

IMAGE = gatehouse
IMAGE_TOOL = docker
DOCKERFILE = Dockerfile
FILES =
FILE =
NODES =
SERVICE =
ARGS =
sources := $(shell find src)

.PHONY: help start dev dump load test test-fast test-node check typecheck audit build test-nginx test-browser test-signin test-pgbouncer test-ha test-deploy test-image test-faults test-arm test-senders image sbom bench bench-start bench-growth bench-memory bench-scaling bench-verify bench-flood bench-drain clean clean-data

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{ printf "  make %-14s %s\n", $$1, $$2 }' Makefile

start: dist/.built ## start the three services, and a private PostgreSQL if DATABASE_URL is not set
	@node --import tsx scripts/start.ts

dev: node_modules/.installed ## like start, but run the source and restart after every change
	@node --import tsx scripts/start.ts --watch

dump: node_modules/.installed ## write the data of DATABASE_URL, or of make start, to a new file: make dump FILE=gatehouse.dump
	@node --import tsx scripts/dump.ts dump $(FILE)

load: node_modules/.installed ## read such a file into the new, empty database of DATABASE_URL or of make start: make load FILE=gatehouse.dump
	@node --import tsx scripts/dump.ts load $(FILE)

test: node_modules/.installed ## run every test against a PostgreSQL of its own; FILES="test/a.test.ts" runs only some
	@node --import tsx scripts/test.ts $(FILES)

# Without the contract tests that wait for timers or hash for seconds.
slow := $(addprefix test/contract/,identity/login/overload.test.ts identity/login/throttle.test.ts identity/login/timing.test.ts \
  identity/keys/use.test.ts identity/sessions/last-seen.test.ts identity/sessions/rights.test.ts secrets/list-pages.test.ts secrets/log.test.ts \
  secrets/passphrase-hashing.test.ts secrets/passphrase-throttle.test.ts webhook/stream.test.ts webhook/stream-ends.test.ts)
fast := test/structure.test.ts $(addprefix test/identity/,policy.test.ts rules.test.ts token.test.ts) \
  test/secrets/qr.test.ts test/webhook/signatures.test.ts test/webhook/signing.test.ts test/deploy/files.test.ts test/deploy/metrics.test.ts \
  $(filter-out $(slow),$(sort $(shell find test/contract -name '*.test.ts')))

test-fast: node_modules/.installed ## run the fast tests: crypto, http, runtime, vectors, structure and most of contract
	@node --import tsx scripts/test.ts test/crypto test/http test/runtime test/vectors $(fast)

test-node: node_modules/.installed ## run the tests with the newest Node 20, 22 and 24 of the npm registry; NODES="22 24" FILES="test/a.test.ts" runs only some
	@node --import tsx scripts/node-versions.ts $(NODES) -- $(FILES)

check: typecheck test ## check the types and run every test; required before a merge

typecheck: node_modules/.installed ## check the types of sources, tests and scripts
	@npm run --silent typecheck

audit: node_modules/.installed ## list what a security reviewer reads; for one service: make audit SERVICE=secrets
	@node --import tsx scripts/audit.ts $(SERVICE)

build: dist/.built ## compile src/ to dist/

test-nginx: node_modules/.installed ## run the configurations of docs/forward-auth.md on nginx and Caddy; installs them if run as root
	@node --import tsx scripts/nginx/install.ts
	@node --import tsx scripts/test.ts scripts/nginx/nginx.test.ts scripts/nginx/caddy.test.ts

test-browser: node_modules/.installed ## test the web pages in Chromium; installs it if run as root
	@node --import tsx scripts/browser/install.ts
	@SCREENSHOTS=$${SCREENSHOTS:-$$(mktemp -d)} && echo "pictures of every page: $$SCREENSHOTS" && export SCREENSHOTS && node --import tsx scripts/test.ts scripts/browser/*.test.ts

test-signin: node_modules/.installed ## sign in with Chromium through nginx and Caddy as documented; installs them if run as root
	@node --import tsx scripts/nginx/install.ts
	@node --import tsx scripts/browser/install.ts
	@SCREENSHOTS=$${SCREENSHOTS:-$$(mktemp -d)} && echo "pictures of every page: $$SCREENSHOTS" && export SCREENSHOTS && node --import tsx scripts/test.ts scripts/signin/*.test.ts

test-pgbouncer: node_modules/.installed ## run the services behind PgBouncer in every pool mode; installs it if run as root
	@node --import tsx scripts/pgbouncer/install.ts
	@node --import tsx scripts/test.ts scripts/pgbouncer/pgbouncer.test.ts

test-deploy: node_modules/.installed ## check the files in deploy/ with the tools that read them, and run Caddy and the services as they say; installs the tools if run as root
	@node --import tsx scripts/deploy/install.ts
	@node --import tsx scripts/test.ts scripts/deploy

test-ha: node_modules/.installed ## kill the leader of a Patroni cluster under load, three ways, and restore a backup; installs PostgreSQL, Patroni, etcd, HAProxy and PgBouncer if run as root
	@node --import tsx scripts/ha/install.ts
	@for name in hosts haproxy pgbouncer backup; do node --import tsx scripts/test.ts scripts/ha/$$name.test.ts || exit 1; done

test-faults: node_modules/.installed ## break processes, PostgreSQL, network and disk under load and check that nothing acknowledged is lost; FAULTS_SEED=n repeats a run
	@node --import tsx scripts/test.ts scripts/faults

test-arm: node_modules/.installed ## run the program on an emulated ARM processor; fetches Node, QEMU and libraries from npm and Debian, installs nothing
	@node --import tsx scripts/test.ts scripts/arm/arm.test.ts

test-senders: node_modules/.installed ## verify signatures made by the senders' own libraries; installs them temporarily from the npm registry
	@node --import tsx scripts/test.ts scripts/senders/senders.test.ts

image: ## build the container image; IMAGE=name, IMAGE_TOOL=podman or buildah, DOCKERFILE=Dockerfile.minimal
	$(IMAGE_TOOL) build --tag $(IMAGE) --file $(DOCKERFILE) $(if $(filter docker,$(IMAGE_TOOL)),,--format docker) .

sbom: node_modules/.installed ## print what a production installation contains, as CycloneDX
	@node --import tsx scripts/image/sbom.ts

test-image: node_modules/.installed ## build both container images with buildah on a base made of this machine's programs, and run them; installs it if run as root
	@node --import tsx scripts/image/install.ts
	@node --import tsx scripts/test.ts scripts/image

bench: dist/.built ## measure against a minimal server and write docs/benchmarks.md; ARGS=--against=REF compares with another commit
	@node --import tsx scripts/bench/suite.ts $(ARGS)

bench-start: dist/.built ## measure startup time and idle memory against a bare node:http process
	@node --import tsx scripts/bench/suite.ts start

bench-memory: dist/.built ## measure memory when idle, under load, and below the limits of small containers under attacks
	@node --import tsx scripts/bench/suite.ts start memory containers

bench-scaling: node_modules/.installed ## simulate 1, 10 and 100 replicas from docs/benchmarks.json and write docs/scaling.md
	@node --import tsx scripts/bench/scaling.ts

bench-growth: dist/.built ## measure each call with 10,000, 1,000,000 and 10,000,000 rows; takes half an hour and 25 GB; ARGS=--sizes=10000,1000000
	@node --import tsx scripts/bench/growth.ts $(ARGS)

bench-verify: dist/.built ## measure forward authentication by cookie against a bearer token
	@node --import tsx scripts/signin/bench.ts

bench-flood: dist/.built ## measure the effect of a flood of wrong passwords on other requests and on memory
	@node --import tsx scripts/bench/flood.ts

bench-drain: node_modules/.installed ## measure the delivery of 10,000 waiting events with and without 1,000,000 delivered ones, and delivery in order
	@node --import tsx scripts/bench/drain.ts

clean: ## remove installed packages and build output; keep the data
	rm -rf node_modules dist

server := .data/postgres/data/postmaster.pid
clean-data: ## remove .data: the private database and the generated secrets
	@if test -f $(server) && kill -0 `head -n 1 $(server)` 2>/dev/null; then echo 'its PostgreSQL is running: stop "make start" first' >&2; exit 1; fi
	@test ! -d .data || echo 'removing .data: the embedded database with everything stored in it, and the generated secrets and tokens'
	@rm -rf .data

# Before npm and tsx, which end with a stack trace on a Node that is too old.
.PHONY: supported-node
supported-node:
	@node -e 'var v = process.versions.node.split("."); if (v[0] < 20 || (v[0] == 20 && v[1] < 11)) { console.error("Node " + process.versions.node + " is too old. Install Node 20.11 or newer."); process.exit(1) }'

# The two files below say that a step was completed; one that was interrupted is done again.
node_modules/.installed: package.json package-lock.json scripts/embedded/package.json .npmrc | supported-node
	npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

# A directory's time changes when a file is added or removed.
dist/.built: node_modules/.installed tsconfig.json scripts/tsconfig.build.json $(sources)
	npm run --silent build
	@touch $@
