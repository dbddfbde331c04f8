-- wrk -s check.lua URL -- BODY_FILE EXPECTED_FILE [NAME VALUE]...
-- Posts the body, compares every answer with the expected bytes, and prints what it found as one line of JSON.
local threads = {}

local function read(path)
  local file = assert(io.open(path, "rb"))
  local bytes = file:read("*a")
  file:close()
  return bytes
end

function setup(thread)
  table.insert(threads, thread)
end

function init(args)
  right, refused, wrong = 0, 0, 0
  expected = read(args[2])
  local headers = {}
  for i = 3, #args, 2 do headers[args[i]] = args[i + 1] end
  post = wrk.format("POST", nil, headers, read(args[1]))
end

function request()
  return post
end

function response(status, headers, body)
  if status == 200 and body == expected then
    right = right + 1
  elseif status == 429 or status == 503 then
    refused = refused + 1
  else
    wrong = wrong + 1
  end
end

function done(summary, latency)
  local right, refused, wrong = 0, 0, 0
  for _, thread in ipairs(threads) do
    right = right + thread:get("right")
    refused = refused + thread:get("refused")
    wrong = wrong + thread:get("wrong")
  end
  local lost = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout
  io.write(string.format('{"right": %d, "refused": %d, "wrong": %d, "seconds": %f, "p50_ms": %f, "p99_ms": %f}\n',
    right, refused, wrong + lost, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
