#include <fmt/format.h>

#include <lockstep/core/shape.hpp>

int main() { fmt::print("{}\n", lockstep::to_string(lockstep::shape(28, 28, 1))); }
