/**
 * Lua that compares stream ids as Redis does. `isBefore(a, b)`: whether entry `a` stands before entry `b`. By their
 * digits, because a number of Lua does not hold 64 bits.
 */
export const IS_BEFORE = `local function isBefore(a, b)
  local aMs, aSeq = string.match(a, '^(%d+)%-(%d+)$')
  local bMs, bSeq = string.match(b, '^(%d+)%-(%d+)$')
  if aMs ~= bMs then
    if #aMs ~= #bMs then return #aMs < #bMs end
    return aMs < bMs
  end
  if #aSeq ~= #bSeq then return #aSeq < #bSeq end
  return aSeq < bSeq
end`;
