/// \file
/// All definitions of the component core. Include it in exactly one source file of a program whose
/// units all define LOCKSTEP_SEPARATE_COMPILATION. Each component has such a header, which includes
/// its parts:
/// \code
///   src.hpp           core_reference.hpp
///   src_cpu.hpp       cpu_float.hpp, cpu_bfloat16.hpp
///   src_cuda.hpp      cuda_float.hpp, cuda_bfloat16.hpp, cuda_float16.hpp
///   src_cluster.hpp   cluster_gloo.hpp
///   src_tensorboard.hpp
///   src_mpi.hpp
/// \endcode
/// With LOCKSTEP_IN_PARTS the parts are left out: src/ compiles each in a separate unit, in
/// parallel.
#pragma once

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error "lockstep/impl/src.hpp: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
#endif

#include "lockstep/collectives/shared_barrier.ipp"
#include "lockstep/collectives/shared_channel.ipp"
#include "lockstep/collectives/shared_memory.ipp"
#include "lockstep/collectives/shared_memory_group.ipp"
#include "lockstep/collectives/thread_group.ipp"
#include "lockstep/concepts/callback.ipp"
#include "lockstep/concepts/callback_state.ipp"
#include "lockstep/core/cores.ipp"
#include "lockstep/core/count.ipp"
#include "lockstep/core/cpu_quota.ipp"
#include "lockstep/core/crc32c.ipp"
#include "lockstep/core/error.ipp"
#include "lockstep/core/format_numbers.ipp"
#include "lockstep/core/log.ipp"
#include "lockstep/core/logs.ipp"
#include "lockstep/core/openmp_places.ipp"
#include "lockstep/core/quote.ipp"
#include "lockstep/core/sha256.ipp"
#include "lockstep/core/shape.ipp"
#include "lockstep/core/threads.ipp"
#include "lockstep/core/work.ipp"
#include "lockstep/core/work_times.ipp"
#include "lockstep/data/loader.ipp"
#include "lockstep/data/sources/cifar10.ipp"
#include "lockstep/data/sources/csv.ipp"
#include "lockstep/data/sources/csv_fields.ipp"
#include "lockstep/data/sources/csv_table.ipp"
#include "lockstep/data/sources/data_folder.ipp"
#include "lockstep/data/sources/digits.ipp"
#include "lockstep/data/sources/drawn_shapes.ipp"
#include "lockstep/data/sources/idx.ipp"
#include "lockstep/data/sources/mnist.ipp"
#include "lockstep/data/sources/npy.ipp"
#include "lockstep/data/sources/npz.ipp"
#include "lockstep/data/sources/splits.ipp"
#include "lockstep/files/atomic_file.ipp"
#include "lockstep/files/byte_reader.ipp"
#include "lockstep/files/checkpoint_directory.ipp"
#include "lockstep/files/file_status.ipp"
#include "lockstep/files/input_file.ipp"
#include "lockstep/files/json_document.ipp"
#include "lockstep/files/safetensors.ipp"
#include "lockstep/files/safetensors_header.ipp"
#include "lockstep/model/engine.ipp"
#include "lockstep/model/fusion.ipp"
#include "lockstep/model/memory_plan.ipp"
#include "lockstep/optimizers/schedule.ipp"
#include "lockstep/optimizers/update_options.ipp"
#include "lockstep/strategies/local_replicas.ipp"
#include "lockstep/strategies/replica_threads.ipp"
#include "lockstep/strategies/virtual_shards.ipp"
#include "lockstep/training/callbacks/backup_and_restore.ipp"
#include "lockstep/training/callbacks/callback_list.ipp"
#include "lockstep/training/callbacks/csv_logger.ipp"
#include "lockstep/training/callbacks/early_stopping.ipp"
#include "lockstep/training/callbacks/lambda_callback.ipp"
#include "lockstep/training/callbacks/learning_rate_scheduler.ipp"
#include "lockstep/training/callbacks/model_checkpoint.ipp"
#include "lockstep/training/callbacks/monitor.ipp"
#include "lockstep/training/callbacks/reduce_lr_on_plateau.ipp"
#include "lockstep/training/callbacks/swap_ema_weights.ipp"
#include "lockstep/training/callbacks/terminate_on_nan.ipp"
#include "lockstep/training/callbacks/trace.ipp"
#include "lockstep/training/checkpoint/checkpoints.ipp"
#include "lockstep/training/checkpoint/job_state.ipp"
#include "lockstep/training/checks/describe_layers.ipp"
#include "lockstep/training/checks/model_signature.ipp"
#include "lockstep/training/checks/not_finite.ipp"
#include "lockstep/training/checks/run_checks.ipp"
#include "lockstep/training/checks/verify_replicas.ipp"
#include "lockstep/training/evaluation.ipp"
#include "lockstep/training/export/architecture.ipp"
#include "lockstep/training/export/load_options.ipp"
#include "lockstep/training/export/op_values.ipp"
#include "lockstep/training/fit_loop.ipp"
#include "lockstep/training/history.ipp"
#include "lockstep/training/parameters.ipp"
#include "lockstep/training/report/fma_rate.ipp"
#include "lockstep/training/report/profile.ipp"
#include "lockstep/training/report/progress.ipp"
#include "lockstep/training/report/progress_bar.ipp"
#include "lockstep/training/report/running_logs.ipp"
#include "lockstep/training/report/start_line.ipp"
#include "lockstep/training/report/step_trace.ipp"
#include "lockstep/training/report/summary.ipp"
#include "lockstep/training/run.ipp"
#include "lockstep/training/run_main.ipp"
#include "lockstep/training/signal_stop.ipp"
#include "lockstep/training/step/updates.ipp"
#include "lockstep/training/weights_file.ipp"

#ifndef LOCKSTEP_IN_PARTS
#include "lockstep/impl/core_reference.hpp"
#endif
