// expect: lockstep::MultiWorkerMirrored: the third argument must be ls::Elastic, with #include <lockstep/elastic.hpp>
#include "lockstep/cluster.hpp"
#include "lockstep/reference.hpp"

lockstep::MultiWorkerMirrored<lockstep::Reference<float>, lockstep::Tcp, lockstep::Elastic>*
    strategy = nullptr;
auto session = strategy->open();
