/**
 * Lua that visits the entries of a stream from one id to another, at most limit of them, until `visit` returns true.
 * Returns how many it has seen, and whether these were all. Its pages grow, and it ends after a megabyte, since the payloads
 * come along.
 */
export const WALK = `local function walk(key, from, to, limit, visit)
  local seen, bytes, page = 0, 0, 1
  while seen < limit do
    local asked = math.min(page, limit - seen)
    local entries = redis.call('XRANGE', key, from, to, 'COUNT', asked)
    for _, entry in ipairs(entries) do
      seen = seen + 1
      for f = 1, #entry[2] do bytes = bytes + #entry[2][f] end
      if visit(entry) then return seen, false end
    end
    if #entries < asked then return seen, true end
    if bytes > 1048576 then return seen, false end
    from = '(' .. entries[#entries][1]
    page = page * 4
  end
  return seen, false
end`;
