#include <cstdio>

#include <lockstep/core/shape.hpp>

int main() { std::puts(lockstep::to_string(lockstep::shape(28, 28, 1)).c_str()); }
