# A newcomer's first command: installs what is missing, builds, shows. What it needs to be run as is the
# demo's own business (demo/run).
.PHONY: demo demo-up demo-down demo-ready
demo: demo-ready
	@demo/run $(OUT)

demo-up: demo-ready
	@demo/run $(OUT) up

demo-down:
	@demo/run $(OUT) down

demo-ready:
	@build/install-deps demo
	@mkdir -p $(OUT); printf 'Building '; \
	$(MAKE) --no-print-directory --jobs=$$(nproc) all >$(OUT)/demo-build.log 2>&1 & \
	while kill -0 $$! 2>/dev/null; do printf .; sleep 1; done; \
	if wait $$!; then echo ' done'; else echo; cat $(OUT)/demo-build.log; exit 1; fi
