// flags: -std=c++17 -U__GNUC__ -D__GNUC__=10 -U__clang_major__ -D__clang_major__=10
// expect: 12 or newer
#include "lockstep/cpu.hpp"
#include "lockstep/lockstep.hpp"
