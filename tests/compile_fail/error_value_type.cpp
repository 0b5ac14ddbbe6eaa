// expect: lockstep::format_text: a value must be a number, a character or a text;
#include "lockstep/core/error.hpp"
#include "lockstep/core/shape.hpp"

void fail() { throw lockstep::UsageError("the shape is {}", lockstep::shape(2, 3)); }
