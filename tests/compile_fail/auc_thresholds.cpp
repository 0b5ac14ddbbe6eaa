// expect: lockstep::AUC: at least 3 thresholds are needed; 200 is usual
#include "lockstep/metrics/auc.hpp"

int main() {
  const lockstep::AUC<2> metric;
  return static_cast<int>(metric.name.size());
}
