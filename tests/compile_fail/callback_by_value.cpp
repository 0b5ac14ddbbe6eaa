// expect: lockstep::Callback: a custom callback must be passed as a shared pointer; write
// .callbacks = {std::make_shared<C>(...)}
#include "lockstep/training/fit_options.hpp"

namespace ls = lockstep;
struct Mine : ls::Callback {};
const ls::FitOptions options{.epochs = 3, .callbacks = {Mine{}}};
