/** A page's payloads come along into the script: it ends early once they are a megabyte. */
const MAX_BYTES = 1_048_576;

/**
 * Lua that visits entries of a stream from one id to another, at most limit of them and until `visit` returns true;
 * with XREVRANGE from the newer to the older. Returns how many it has seen, the id of the last (false if there was none), and
 * 1 if the range may go on behind it. Its pages grow, so that big payloads end it early.
 */
export const WALK: string = `local function walk(key, from, to, limit, command, visit)
  local seen, bytes, size, last = 0, 0, 1, false
  while seen < limit do
    local asked = math.min(size, limit - seen)
    local entries = redis.call(command, key, from, to, 'COUNT', asked)
    for _, entry in ipairs(entries) do
      local isEnough = visit(entry, seen)
      seen = seen + 1
      last = entry[1]
      if isEnough then return seen, last, 1 end
      for f = 1, #entry[2] do bytes = bytes + #entry[2][f] end
    end
    if #entries < asked then return seen, last, 0 end
    if bytes > ${MAX_BYTES} then break end
    from = '(' .. last
    size = size * 4
  end
  return seen, last, 1
end`;
