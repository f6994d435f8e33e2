local loaded, slurmplug = pcall(dofile, "/etc/slurmplug/slurmplug.lua")

function slurm_job_submit(job_desc, part_list, submit_uid)
    local ran, wrong = pcall(function() return loaded and slurmplug.check(job_desc, submit_uid) end)
    if ran and wrong then
        slurm.log_user("%s", wrong)
        return slurm.ERROR
    end
    local warned, warning = pcall(function() return loaded and slurmplug.warning(job_desc) end)
    if warned and warning then
        slurm.log_user("%s", warning)
    end
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    local ran, wrong = pcall(function() return loaded and slurmplug.check_reservation(job_desc, modify_uid) end)
    if ran and wrong then
        slurm.log_user("%s", wrong)
        return slurm.ERROR
    end
    return slurm.SUCCESS
end
