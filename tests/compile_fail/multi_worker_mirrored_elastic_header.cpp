// expect: lockstep: the third argument of MultiWorkerMirrored and ParameterServer must be ls::Elastic, with #include <lockstep/elastic.hpp>
#include "lockstep/cluster.hpp"
#include "lockstep/reference.hpp"

lockstep::MultiWorkerMirrored<lockstep::Reference<float>, lockstep::Tcp, lockstep::Elastic>*
    strategy = nullptr;
auto session = strategy->open();
