# SPDX-License-Identifier: Apache-2.0

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
GO          ?= go
VERSION     ?= $(shell git describe --tags --exact-match 2>/dev/null || echo 0.1.0-dev)
LDFLAGS     := -s -w -X github.com/berth-dev/berth/internal/version.version=$(VERSION)
GOARCH      := $(shell $(GO) env GOARCH)
DRIVERS     := daytona docker e2b modal unixlocal
GUESTS      := $(addprefix sdk/guest/embed/bin/berth-guest-linux-,amd64 arm64)
LINT        := .bin/golangci-lint-v2.15.0

# Everything is static; with one setting, build and tests also share what they compile.
export CGO_ENABLED := 0

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

.PHONY: build
build: guest ## build berth and its drivers into bin/
	mkdir -p bin
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/berth ./core/cmd/berth
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/berth-mount-rclone ./mounts/rclone
	for d in $(DRIVERS); do $(GO) build -ldflags '$(LDFLAGS)' -o bin/berth-driver-$$d ./plugins/$$d; done

# The guest runs inside sandboxes. Drivers carry it for each processor that Linux sandboxes have.
.PHONY: guest
guest: $(GUESTS)

sdk/guest/embed/bin/berth-guest-linux-%: FORCE
	GOOS=linux GOARCH=$* $(GO) build -tags berth_guest -trimpath -ldflags '-s -w' -o $@ ./sdk/guest/cmd/berth-guest

.PHONY: FORCE
FORCE:

.PHONY: demo
demo: build ## build, then watch an agent work in a confined sandbox
	@tools/demo.sh

.PHONY: test
test: deps ## install what the tests need and run them all
	tools/test.sh

.PHONY: deps
deps: ## install the packages that the tests use (Debian, as root)
	tools/deps.sh

.PHONY: race
race: ## run the tests under the race detector
	CGO_ENABLED=1 $(GO) test -race ./...

.PHONY: fuzz
fuzz: ## fuzz every parser, 10 s each
	tools/fuzz.sh 10s

.PHONY: bench
bench: build ## measure against the targets; prints JSON lines and ratios
	tools/bench.sh

.PHONY: lint
lint: $(LINT) ## run the linters
	$(LINT) run ./...
	GOOS=darwin $(GO) vet ./core/... ./sdk/...
	GOOS=linux GOARCH=arm64 $(GO) vet ./...

$(LINT):
	mkdir -p .bin
	GOBIN=$(CURDIR)/.bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	mv .bin/golangci-lint $@

.PHONY: generate
generate: ## regenerate the protocol's Go code and the reference documents
	tools/generate.sh

.PHONY: clean
clean: ## remove what the build made
	rm -rf bin .bin $(GUESTS)
