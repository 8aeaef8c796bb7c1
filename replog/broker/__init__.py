"""The data plane's rules: leaders, followers, ISR, high watermark."""
