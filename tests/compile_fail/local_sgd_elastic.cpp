// expect: lockstep::Model: under ls::LocalSgd and ls::DiLoCo a process that dies takes its optimizer's buffers and the steps of a round along; leave out ls::Elastic, or the policy
#include "lockstep/cluster.hpp"
#include "lockstep/elastic.hpp"
#include "lockstep/local_sgd.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;

struct Net : ls::Sequential<ls::Input<1>, ls::Dense<1>> {};
ls::Model model{
    Net{}, ls::MultiWorkerMirrored<ls::Reference<float>, ls::Tcp, ls::Elastic>{} | ls::LocalSgd{},
    ls::MeanSquaredError{}, ls::SGD{}};
