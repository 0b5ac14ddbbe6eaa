// flags: -U__GNUC__ -D__GNUC__=11 -U__clang_major__ -D__clang_major__=13
// expect: 12 or newer
#include "lockstep/cpu.hpp"
#include "lockstep/lockstep.hpp"
