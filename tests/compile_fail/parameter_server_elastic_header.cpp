// expect: lockstep: the third argument of MultiWorkerMirrored and ParameterServer must be ls::Elastic, with #include <lockstep/elastic.hpp>
#include "lockstep/parameter_server.hpp"
#include "lockstep/reference.hpp"

lockstep::ParameterServer<lockstep::Reference<float>, lockstep::Tcp, lockstep::Elastic>* strategy =
    nullptr;
auto session = strategy->open();
