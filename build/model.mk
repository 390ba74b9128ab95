# make model     every reachable state of the record's rules, and each rule taken out to see its fault come back

MODEL = $(OUT)/model/explore

$(MODEL): $(call objects,$(wildcard t/model/*.c)) $(OUT)/obj/src/core/machine.o
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS)

.PHONY: model
model: $(MODEL)
	@for mode in external marked transactional provider repeatable; do $(MODEL) $$mode || exit 1; done
	@for case in "external by-operation" "repeatable by-operation" "provider reject-stays" "external late-owner" \
	    "provider open-attempt" "external quiet" "external lease-recovers"; do \
	    if $(MODEL) $$case > $(OUT)/model/trace; then echo "model: $$case is not missed"; exit 1; fi; \
	    head -1 $(OUT)/model/trace; \
	done
	@echo "model: every promise kept, every rule needed"
