# A balancer of FastCGI members that goes on to the next one after a failure could run a request twice. Where a route may
# meet one, httpd does not start.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(start => 0, modules => [qw(proxy proxy_fcgi proxy_http proxy_balancer lbmethod_byrequests slotmem_shm)]);
my $route = protected({ by => 'none' }, '/pay', 'pay');

sub pool { my ($set, @members) = @_; return "<Proxy \"balancer://Pool\">\n" . join('', map { "    BalancerMember \"$_\"\n" } @members) . ($set ? "    ProxySet $set\n" : '') . "</Proxy>\n" }
my @fcgi = ('fcgi://127.0.0.1:9001', 'unix:/run/b.sock|fcgi://b/');
my $pass = "ProxyPass \"/pay\" \"balancer://pool/app\"\n";

sub verdict {
    my ($sound, $name, $text) = @_;
    my ($status, $said) = $t->httpd->configtest($t->expand($text));
    return is($status, 0, "$name: starts") || diag($said) if $sound;
    isnt($status, 0, "$name: does not start");
    like($said, qr/test\.conf:\d+: \w+ .*pool.*maxattempts=0/i, "$name: says where, and what to do");
}

verdict(0, 'two members', $route . pool('', @fcgi) . $pass);
verdict(0, 'the route inside of the path', protected({ by => 'none' }, '/pay/charges', 'pay') . pool('', @fcgi) . $pass);
verdict(0, 'the path inside of the route', $route . pool('', @fcgi) . $pass =~ s{"/pay"}{"/pay/fast"}r);
verdict(0, 'a FastCGI and an HTTP member', $route . pool('', $fcgi[0], 'http://127.0.0.1:9002') . $pass);
verdict(0, 'one member, tried again', $route . pool('maxattempts=2', $fcgi[0]) . $pass);
verdict(0, 'ProxyPass in a Location', $route . pool('', @fcgi) . "<Location \"/pay\">\n    ProxyPass \"balancer://pool/app\"\n</Location>\n");
verdict(0, 'a rewrite', $route . pool('', @fcgi) . "RewriteEngine On\nRewriteRule ^/pay(.*) balancer://pool/app\$1 [P]\n");
verdict(0, 'a handler', $route . pool('', @fcgi) . "<Location \"/pay\">\n    SetHandler \"proxy:balancer://pool/\"\n</Location>\n");
verdict(0, 'members named outside', $route . join('', map { "BalancerMember \"balancer://pool\" \"$_\"\n" } @fcgi) . $pass);
verdict(1, 'maxattempts=0 in ProxySet', $route . pool('maxattempts=0', @fcgi) . $pass);
verdict(1, 'maxattempts=0 in ProxyPass', $route . pool('', @fcgi) . $pass =~ s/app"/app" maxattempts=0/r);
verdict(1, 'one member', $route . pool('', $fcgi[0]) . $pass);
verdict(1, 'HTTP members', $route . pool('', 'http://127.0.0.1:9001', 'http://127.0.0.1:9002') . $pass);
verdict(1, 'where no route is', $route . pool('', @fcgi) . $pass =~ s{"/pay"}{"/blog"}r);
verdict(1, 'no route at all', pool('', @fcgi) . $pass);
$t->finish;
