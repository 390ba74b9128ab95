# make check-directives   every directive is registered, documented and in the sample
# make check-docs         links, anchors, files and make targets that the pages name; the manual page has all of the tool
.PHONY: check-directives check-docs
check-directives:
	@build/check-directives

check-docs: $(CTL)
	@build/check-docs $(OUT)
