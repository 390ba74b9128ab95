# The store's own tests talk to a server through this program; see t/store/driver.c.
STORE_DRIVER = $(OUT)/store-driver
DRIVER_OBJS  = $(call objects,$(wildcard t/store/*.c))

.PHONY: store-driver
store-driver: $(STORE_DRIVER)
$(STORE_DRIVER): $(DRIVER_OBJS) $(CORE_OBJS) $(STORE_OBJS)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS)
