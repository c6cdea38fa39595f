/** Lua that tells whether a partition knows a group: by its commit position, or in its stream. Needs `commit`, `stream` and `group`. */
export const IS_KNOWN = `local function isKnown()
  if redis.call('HEXISTS', commit, group) == 1 then return true end
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  if groups.err then return false end
  for _, known in ipairs(groups) do
    for i = 1, #known, 2 do if known[i] == 'name' and known[i + 1] == group then return true end end
  end
  return false
end`;
