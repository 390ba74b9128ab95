.PHONY: check-directives
check-directives:
	@build/check-directives
