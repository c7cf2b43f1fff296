"""The broker settings that storage obeys, each named after its key, with Kafka 3.9's defaults but for one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from braidlog.config.log_settings import MAX_LONG
from braidlog.storage.cleaner.cleaning_request import CleanerConfig

# Where no number is set; in Kafka it is 1.
RECOVERY_THREADS: Final = 8


@dataclass(frozen=True, slots=True)
class StorageSettings:
    num_recovery_threads_per_data_dir: int = RECOVERY_THREADS
    log_retention_check_interval_ms: int = 300_000
    log_flush_scheduler_interval_ms: int = MAX_LONG
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    # Removals of whole logs; those of segments go by their topic's file.delete.delay.ms.
    log_segment_delete_delay_ms: int = 60_000
    log_initial_task_delay_ms: int = 30_000
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    log_cleaner_enable: bool = True
    log_cleaner_threads: int = 1
    log_cleaner_backoff_ms: int = 15_000
    cleaner_config: CleanerConfig = field(default_factory=CleanerConfig)
    replica_alter_log_dirs_io_max_bytes_per_second: int = MAX_LONG
