# A module that stops httpd at named points, for the tests of t/fault.
STOP_MODULE = $(OUT)/mod_stop.so

$(STOP_MODULE): $(OUT)/obj/t/fault/mod_stop.o
	$(CC) -shared $(ALL_LDFLAGS) -o $@ $^

http: $(STOP_MODULE)
