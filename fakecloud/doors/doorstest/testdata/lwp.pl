use LWP::UserAgent;

my $ua = LWP::UserAgent->new(env_proxy => 1);
print $ua->get("https://api.hetzner.cloud/v1/servers", Authorization => "Bearer $ENV{HCLOUD_TOKEN}")->decoded_content, "\n";
print $ua->get("https://example.com")->status_line, "\n";
