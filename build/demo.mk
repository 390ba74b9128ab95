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
	@echo 'Building ...'
	@$(MAKE) --no-print-directory --silent all
