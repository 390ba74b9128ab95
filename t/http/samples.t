# What conf/ shows must be accepted by httpd as it stands there: the sample's defaults and alternatives, and each
# worked example; and the demo's configuration.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(start => 0, httpd => { modules => [qw(auth_openidc authn_dbm authz_host proxy proxy_http proxy_fcgi)] });
my $conf = "conf";

# exit status and output of a configtest; ${APACHE_LOG_DIR} is Debian's.
sub tested {
    my ($text) = @_;
    return $t->httpd->configtest("Define APACHE_LOG_DIR @{[ $t->httpd->root ]}/logs\n$text");
}

sub accepted {
    my ($text, $what) = @_;
    my ($status, $said) = tested($text);
    is($status, 0, $what) or diag($said);
}

my $sample = slurp("$conf/idempotency.conf");
accepted($sample, 'the sample as it is');

# Defaults and alternatives, each by itself. A route needs identity; IdempotencyStore needs its host.
my $identity = "IdempotencyTenant const:t\nIdempotencyPrincipal user\n";
my @lines = $sample =~ /^#(?: or: )?(Idempotency\w+ .*)$/mg;
cmp_ok(scalar @lines, '>', 40, 'directives and alternatives are found');
for my $line (@lines) {
    my $host = $line =~ /^IdempotencyStore\s+(\S+)/ ? "<VirtualHost 127.0.0.1:1>\nServerName $1\n</VirtualHost>\n" : '';
    accepted("$identity$line\n$host", $line =~ s/\s+/ /gr);
}
my ($status, $said) = tested("IdempotencyRoute r\n");
isnt($status, 0, 'a route without identity is refused');
like($said, qr/IdempotencyTenant/, 'and it says what is missing');

# Those that name certificates or keys run in oidc.t and certificate.t, where there are such.
for my $file (grep { !m{/(?:oidc-bearer|oidc-both|client-certificate)\.conf} } glob "$conf/examples/*.conf") {
    accepted(slurp($file) =~ s{exec:/bin/cat [^"]*}{exec:/bin/echo secret}gr, $file);
}
like(slurp("$conf/idempotency.load"), qr/\A# Depends: dbd socache_shmcb\nLoadModule idempotency_module \S+\n\z/, 'idempotency.load, as a2enmod reads it');

my ($status, $said) = run(cmd => [ 'promtool', 'check', 'rules', "$conf/examples/alerts.yml" ], self => 1, dir => source_dir());
is($status, 0, 'the alert rules') or diag($said);

$t->finish;
