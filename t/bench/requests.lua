-- wrk: POST with a fresh key each time (KEYS=fresh), with one of those that are known (KEYS=known; KNOWN of them, 64 where
-- nothing is said), or without (KEYS=none). TENANTS: the request is one of so many tenants'. Ends with one line that the
-- caller reads.
local kind = os.getenv("KEYS")
local run = os.getenv("RUN")
local known = tonumber(os.getenv("KNOWN") or 64)
local tenants = tonumber(os.getenv("TENANTS") or 0)
local threads = 0

function setup(thread)
    threads = threads + 1
    thread:set("number", threads)
end

function init(args)
    count = 0
    math.randomseed(number * 7919 + os.time())
    wrk.method = "POST"
    wrk.body = '{"amount":1999,"currency":"eur","source":"tok_visa","description":"one of many"}'
    wrk.headers["Content-Type"] = "application/json"
    wrk.headers["Host"] = os.getenv("AUTHORITY")
end

function request()
    count = count + 1
    if kind == "fresh" then
        wrk.headers["Idempotency-Key"] = '"' .. run .. "-" .. number .. "-" .. count .. '"'
    elseif kind == "known" then
        wrk.headers["Idempotency-Key"] = '"known-' .. (known == 64 and count % 64 or math.random(0, known - 1)) .. '"'
    end
    if tenants > 0 then
        wrk.headers["X-Tenant"] = "t" .. math.random(1, tenants)
    end
    return wrk.format()
end

function done(summary, latency, requests)
    local e = summary.errors
    io.write(string.format("RESULT %d %d %d %d status %d connect %d read %d write %d timeout %d\n", summary.requests, summary.duration, latency:percentile(50),
        latency:percentile(99), e.status, e.connect, e.read, e.write, e.timeout))
end
