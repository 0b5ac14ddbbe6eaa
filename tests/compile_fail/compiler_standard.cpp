// flags: -std=c++17
// expect: lockstep needs C++20: add -std=c++20
#include "lockstep/cpu.hpp"
#include "lockstep/lockstep.hpp"
