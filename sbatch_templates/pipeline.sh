#!/bin/bash
# Submits three jobs, of which each starts when the one before it has ended COMPLETED: bash pipeline.sh, in the folder in
# which the files of the pipeline lie.
set -euo pipefail
# The name of this run and of the folder that its jobs share.
run=digits-$(date +%Y%m%d-%H%M%S)
mkdir "$run"
# The three jobs make one model together, --ml-job: so a part has the deadline of the last one, less the time of those that
# depend on it. It is in the comment, not in the scripts, as each run has a name of its own; the scripts' directives stay.
together=--comment="plug: ml-job=$run"

preprocess=$(sbatch --parsable "$together" pipeline_preprocess.sbatch "$run")
train=$(sbatch --parsable "$together" --dependency="afterok:$preprocess" pipeline_train.sbatch "$run")
evaluate=$(sbatch --parsable "$together" --dependency="afterok:$train" pipeline_evaluate.sbatch "$run")
echo "$run: preprocess $preprocess, train $train, evaluate $evaluate"
