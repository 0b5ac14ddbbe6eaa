#!/bin/bash
#SBATCH --job-name=mnist
#SBATCH --nodes=4 --ntasks-per-node=2 --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue --open-mode=append
# Submit it with sbatch. Eight workers, two on each node; it continues from its checkpoint in a new allocation until
# training ends.
export LOCKSTEP_SECRET_FILE=$HOME/lockstep.secret

srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --cpu-bind=cores --distribution=block --kill-on-bad-exit=0 \
  ./mnist_multi_worker --data mnist --threads "$SLURM_CPUS_PER_TASK" \
  --checkpoint run1 --checkpoint-every 500 --resume
code=$?

# 2: refused options; 130: Ctrl-C. All others: the time limit is near (143), or a worker was lost.
case $code in
  0 | 2 | 130) exit "$code" ;;
esac
((${SLURM_RESTART_COUNT:-0} < 20)) && scontrol requeue "$SLURM_JOB_ID"
exit "$code"
