-- Gives a place of the engine back where the body of a request does not end.
-- "filter lua.bodies SECONDS": so long a body may take once an engine takes it.

local GRACE_S = 2 -- for the rest of a body, and for the client to get an answer that came before it

local Bodies = {id = "ends bodies that take long", flags = filter.FLT_CFG_FL_HTX}
Bodies.__index = Bodies

function Bodies:new()
  return setmetatable({seconds = self.seconds}, Bodies)
end

function Bodies:start_analyze(_, channel)
  if not channel:is_resp() then
    filter.register_data_filter(self, channel)
  end
end

function Bodies:http_headers(_, message)
  if message:is_resp() and not self.complete then
    filter.register_data_filter(self, message.channel) -- else its end is not told
  end
end

function Bodies:http_payload(txn, message)
  local now = core.now().sec
  if message:is_resp() then
    return
  elseif self.ends and now >= self.ends then
    error("a body did not come in time", 0)
  elseif not self.ends and txn.f:bc_src_port() then -- while it waits for an engine it may not be sent
    self.ends = now + self.seconds
  end
end

function Bodies:http_end(_, message)
  if message:is_resp() then
    self.ends = core.now().sec + GRACE_S
  else
    self.complete = true
  end
end

core.register_filter("bodies", Bodies, function(bodies, arguments)
  bodies.seconds = tonumber(arguments[1])
  return bodies
end)
