-- What wrk sends: one request over and over, or with an id of its own each time. What it found is printed as JSON.
-- What to send comes from the environment; BENCH_HEADERS has one "Name: value" a line.
wrk.method = "POST"
wrk.path = os.getenv("BENCH_PATH")
wrk.body = io.open(os.getenv("BENCH_BODY_FILE")):read("*a")
for line in os.getenv("BENCH_HEADERS"):gmatch("[^\n]+") do
  local name, value = line:match("^([^:]+): (.*)$")
  wrk.headers[name] = value
end

-- An id of its own for every request: a request_id of ours, or the id of a request of JSON-RPC.
local serial = 0
local fresh = os.getenv("BENCH_FRESH_IDS")
local before, after
if os.getenv("BENCH_JSON_RPC") then
  before, after = wrk.body:match('^(.*"id":)1(,.*)$')
elseif fresh then
  before, after = wrk.body:sub(1, -2) .. ',"request_id":"' .. fresh .. "-", '"}'
end

function init()
  if before == nil then
    local rendered = wrk.format()
    request = function() return rendered end
  end
end

function request()
  serial = serial + 1
  return wrk.format(nil, nil, nil, before .. serial .. after)
end

function done(summary, latency, requests)
  io.write(string.format(
    '\nBENCH {"requests":%d,"seconds":%.6f,"p50":%.3f,"p95":%.3f,"p99":%.3f,"bad":%d}\n',
    summary.requests, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(95) / 1e3, latency:percentile(99) / 1e3,
    summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout))
end
