// expect: lockstep::Model: a process that dies takes the gradients along that it has not sent; leave out ls::Elastic or ls::wire
#include "lockstep/cluster.hpp"
#include "lockstep/elastic.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/wire.hpp"

namespace ls = lockstep;

struct Net : ls::Sequential<ls::Input<1>, ls::Dense<1>> {};
ls::Model model{
    Net{}, ls::MultiWorkerMirrored<ls::Reference<float>, ls::Tcp, ls::Elastic>{} | ls::wire::TopK{},
    ls::MeanSquaredError{}, ls::SGD{}};
