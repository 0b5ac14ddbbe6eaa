// expect: lockstep::run_main: the body takes nothing or a std::stop_token, and returns nothing or
// an int; write run_main([] { ... })
#include "lockstep/training/run_main.hpp"

int main() {
  return lockstep::run_main([](int, char**) {});
}
