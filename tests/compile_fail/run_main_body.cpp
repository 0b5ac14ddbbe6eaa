// expect: lockstep::run_main: the body must accept no argument or a std::stop_token, and
// return void or int; write run_main([] { ... })
#include "lockstep/training/run_main.hpp"

int main() {
  return lockstep::run_main([](int, char**) {});
}
