# podling: build, try, test, install. `make help` lists the targets.

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
# Where `make run` keeps everything it makes; podling's --root.
DEMO    ?= $(CURDIR)/target/demo

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
RELEASE    := $(TARGET_DIR)/release
BINARIES   := podling podling-logger podling-pause
HOST        = $(shell rustc -vV | sed -n 's/^host: //p')
BINDIR     := $(PREFIX)/bin

.DEFAULT_GOAL := build
.PHONY: help deps build run stop clean-run test lint bench install uninstall

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

deps: ## Install what is missing (Debian, Ubuntu; as root)
	@scripts/deps.sh

# Static, so that one file runs on any distribution and the daemon is about a quarter smaller in memory.
# Naming the target keeps the flag away from build scripts and procedural macros, which must be dynamic.
build: ## Build the release binaries into target/release
	RUSTFLAGS='-C target-feature=+crt-static' $(CARGO) build --release --locked --target $(HOST)
	@mkdir -p $(RELEASE)
	@for b in $(BINARIES); do install -m 755 $(TARGET_DIR)/$(HOST)/release/$$b $(RELEASE)/$$b; done

run: deps build ## Run the example pods of manifests/ in the foreground (as root)
	@PODLING=$(RELEASE)/podling DEMO='$(DEMO)' scripts/run.sh

stop: ## Stop and remove the pods that make run left running, and everything else it made
	@PODLING=$(RELEASE)/podling DEMO='$(DEMO)' scripts/stop.sh

clean-run: stop ## The same as stop

test: deps ## Run all tests (as root)
	$(CARGO) test --locked

lint: ## Formatting, clippy and the documentation's links
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --no-deps --document-private-items

# The harness itself is a debug build, which the tests have compiled already; what it measures is not.
bench: deps build ## Measure start latency, memory, bursts and adoption on this machine (as root)
	PODLING_BIN='$(abspath $(RELEASE)/podling)' $(CARGO) bench --locked --profile dev --bench harness

install: ## Install binaries, unit, completions and an empty /etc/pods (PREFIX, DESTDIR)
	@test -x $(RELEASE)/podling || { echo 'install: nothing built yet; run: make build' >&2; exit 1; }
	install -d $(DESTDIR)$(BINDIR)
	@for b in $(BINARIES); do install -m 755 $(RELEASE)/$$b $(DESTDIR)$(BINDIR)/$$b; done
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)$(PREFIX)/lib/tmpfiles.d
	sed 's|/usr/local/bin|$(BINDIR)|' systemd/podling.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/podling.service
	sed 's|/usr/local/bin|$(BINDIR)|' systemd/podling-shutdown.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/podling-shutdown.service
	install -m 644 systemd/podling.tmpfiles $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/podling.conf
	install -d $(DESTDIR)$(PREFIX)/share/doc/podling/systemd
	install -m 644 README.md docs/*.md $(DESTDIR)$(PREFIX)/share/doc/podling/
	install -m 644 systemd/examples/*.conf $(DESTDIR)$(PREFIX)/share/doc/podling/systemd/
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
	    $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(RELEASE)/podling completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/podling
	$(RELEASE)/podling completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_podling
	$(RELEASE)/podling completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/podling.fish
	test -d $(DESTDIR)/etc/pods || install -d -m 700 $(DESTDIR)/etc/pods
	@test -n '$(DESTDIR)' || test ! -d /run/systemd/system || systemctl daemon-reload
	@echo 'Installed. Start it with: systemctl enable --now podling podling-shutdown'

uninstall: ## Remove what install put in place; pods, manifests and state stay
	@test -n '$(DESTDIR)' || test ! -d /run/systemd/system || systemctl disable --now podling podling-shutdown || true
	@for b in $(BINARIES); do rm -f $(DESTDIR)$(BINDIR)/$$b; done
	rm -f $(DESTDIR)$(PREFIX)/lib/systemd/system/podling.service $(DESTDIR)$(PREFIX)/lib/systemd/system/podling-shutdown.service $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/podling.conf
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/podling
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/podling \
	    $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_podling \
	    $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/podling.fish
	@test -n '$(DESTDIR)' || test ! -d /run/systemd/system || systemctl daemon-reload
