// expect: lockstep::AUC: it needs 3 thresholds or more; 200 is usual
#include "lockstep/metrics/auc.hpp"

int main() {
  const lockstep::AUC<2> metric;
  return static_cast<int>(metric.name.size());
}
